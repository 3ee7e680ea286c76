module exhibit

go 1.25

require github.com/bgp/stayrtr v0.6.0

require (
	golang.org/x/crypto v0.6.0 // indirect
	golang.org/x/sys v0.15.0 // indirect
)
