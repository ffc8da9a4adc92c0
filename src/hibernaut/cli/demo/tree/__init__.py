"""The second story: an agent that listens to a log, a thread for every line, and a question to a person."""
