"""What is deployed, as Pulumi's backend knows it: stacks, their states, and the engine that destroys them."""
