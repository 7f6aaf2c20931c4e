"""What a node boots with: a frozen spec in, Bottlerocket user data out."""
