"""What each command does once its arguments are parsed. Each imports what it needs when it is called."""
