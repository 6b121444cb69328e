"""The main job on a real broker: the ghost write, acted out without the fence and with it, and what the log proves."""
