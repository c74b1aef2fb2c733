"""What can be executed: strict tool models, risk classes, the one choke point."""
