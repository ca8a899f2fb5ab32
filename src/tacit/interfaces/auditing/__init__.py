"""The parts of an audit: who the canary is, what an observer sees, and what its guesses prove."""
