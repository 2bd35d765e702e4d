package nixl
var firstSpin = 10000
