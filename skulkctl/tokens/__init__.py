"""Access tokens: the list, and files that hold one."""
