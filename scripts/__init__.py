"""What a person runs: the console command, one module per verb."""
