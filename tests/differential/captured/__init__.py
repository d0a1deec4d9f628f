"""Generated modules as programs write them: numbers, containers, closures, graph breaks, hooks, transforms, modes."""
