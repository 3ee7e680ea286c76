module exhibit

go 1.25

require github.com/panjf2000/gnet v1.4.0

require (
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	go.uber.org/atomic v1.7.0 // indirect
	go.uber.org/multierr v1.6.0 // indirect
	go.uber.org/zap v1.16.0 // indirect
	golang.org/x/sys v0.0.0-20201116194326-cc9327a14d48 // indirect
)
