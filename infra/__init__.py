"""What Pulumi owns: settings, environment and model stacks, components."""
