"""What a person sees while runs are made."""
