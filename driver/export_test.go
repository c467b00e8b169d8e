package driver

// RaceEnabled says whether the race detector is at work.
const RaceEnabled = raceEnabled
