"""Run somebody else's code so that whatever it does ends in an answer and leaves this process as it was."""
