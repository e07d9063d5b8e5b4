"""What test files share; none imports another."""
