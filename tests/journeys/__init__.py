"""What a person does with a workspace, from outside, on the real engine."""
