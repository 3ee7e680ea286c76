"""The proof: which segments Nagle's algorithm held until a delayed ACK, and the cause of every other idle gap."""
