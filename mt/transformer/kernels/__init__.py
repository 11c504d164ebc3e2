"""What processors need to be fast: functions that compute what plain operations of torch do."""
