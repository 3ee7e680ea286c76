module exhibit

go 1.25

require github.com/tidwall/evio v1.0.8

require github.com/kavu/go_reuseport v1.5.0 // indirect
