"""Taking a stack down in the right order: what goes when, what is waited for, what holds it, what proves it."""
