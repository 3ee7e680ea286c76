# Loaded by every Ruby that a traced command starts: say, before each write to a socket, which line makes it.
# A mark is a system call that cannot succeed and whose path contains the information: strace sees it in the thread
# that writes, right before the write. nagle_lab/guard/tracing/strace_output.py explains its format.

require "rbconfig"

module NagleLabMarks
  DEEPEST = 60
  MOST_OF_LIBRARIES = MOST_OF_PROGRAM = 8
  LONGEST = 200
  GEM = %r{\A.*/(?:gems|bundler/gems)/(?=[^/]+-[^/]+/)}
  LIBRARIES = RbConfig::CONFIG.values_at("rubylibdir", "sitelibdir", "vendorlibdir").compact.map { |path| "#{path}/" }
  PLUMBING = %w[socket.rb delegate.rb forwardable.rb monitor.rb openssl/buffering.rb].freeze

  class << self
    def tell(io, length, call)
      return unless io.is_a?(IO) && !io.is_a?(File) && (io.is_a?(socket) || io.stat.socket?)

      places = frames(caller_locations(2, DEEPEST) || [])
      mark(io.fileno, length, call, *places.flatten)
    rescue StandardError
      nil # the program continues as it would without us
    end

    def mark(*words)
      Dir.rmdir("/proc/nagle-lab;" + words.map { |word| word.to_s.tr(";\0", ",") }.join(";"))
    rescue SystemCallError
      nil # it cannot succeed
    end

    def length_of(parts)
      parts.all?(String) ? parts.sum(&:bytesize) : 0
    end

    private

    def socket
      @socket ||= defined?(BasicSocket) ? BasicSocket : nil
      @socket || Module # no IO is a Module
    end

    # The libraries' frames, innermost first and without plumbing, up to the program's frames, and then these.
    def frames(locations)
      libraries = []
      program = []
      # A method in C has the line of its caller, so the caller is named.
      callers = locations.chunk_while { |one, up| one.lineno == up.lineno && one.path == up.path }.map(&:last)
      callers.each do |location|
        path = location.absolute_path || location.path.to_s
        next if path.start_with?("<internal:") || path == __FILE__

        folder = path[GEM] || LIBRARIES.find { |one| path.start_with?(one) }
        file = folder ? path.delete_prefix(folder) : path
        file = "…#{file[-LONGEST..]}" if file.length > LONGEST
        place = [file, location.lineno, location.base_label]
        if !folder
          program << place if program.length < MOST_OF_PROGRAM
        elsif program.empty? && libraries.length < MOST_OF_LIBRARIES && !PLUMBING.include?(file)
          libraries << place
        end
      end
      libraries + program
    end
  end

  # The writing methods of every IO; print, puts and << call write.
  module Writes
    def write(*parts)
      NagleLabMarks.tell(self, NagleLabMarks.length_of(parts), "write")
      super
    end

    def syswrite(part)
      NagleLabMarks.tell(self, NagleLabMarks.length_of([part]), "syswrite")
      super
    end

    def write_nonblock(part, **options)
      NagleLabMarks.tell(self, 0, "write_nonblock")
      super
    end
  end

  # Methods that only sockets have, or override.
  module Sends
    %i[send sendmsg sendmsg_nonblock write_nonblock].each do |name|
      define_method(name) do |*arguments, **options|
        NagleLabMarks.tell(self, 0, name.to_s)
        super(*arguments, **options)
      end
    end

    def setsockopt(*arguments)
      NagleLabMarks.tell(self, 0, "setsockopt")
      super
    end
  end

  # IO.copy_stream writes directly; the socket classes exist only after a require.
  module ClassOfIO
    def copy_stream(from, to, *more)
      NagleLabMarks.tell(to, 0, "copy_stream")
      super
    end

    def inherited(made)
      super
      made.prepend(Sends) if made.name == "BasicSocket"
    end
  end
end

IO.prepend(NagleLabMarks::Writes)
IO.singleton_class.prepend(NagleLabMarks::ClassOfIO)
NagleLabMarks.mark("hook", "ruby")
