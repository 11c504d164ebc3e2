"""Fast forms of plain operations, each with the same signature as the plain one."""
