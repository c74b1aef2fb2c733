"""Judges of free text: which of two utterances an answer takes up, what is done about a question that has none, and
whether an answer is right."""
