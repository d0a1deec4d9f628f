"""What may run together: order between groups, and reads inside one."""
