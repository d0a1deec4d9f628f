"""The remote cache: entries that machines share, signed, behind two functions of a server or a file system."""
