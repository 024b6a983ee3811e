// Bounds the memory for which files may ask. A small file can be made to claim
// that it holds much, so all that a command reads is bounded in sum. So is all
// that a run writes, so that every log of ours can be read.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace isoloss::hdf5 {

/// Says who made a file.
enum class Maker {
  kAnybody,
  kThisRun,  ///< in this process: its memory is not counted
};

/// Returns the limit for the bytes of all values of one file, and of all files
/// that are held at a time: 384 MiB, or ISOLOSS_MEMORY_MIB. Twice the sizes of
/// the files on disk does not count.
/// Errors   ConfigError if that variable is no number of MiB.
size_t ReadLimit();

/// In ReadLimit() one text counts for this many bytes besides its characters:
/// it stands in several lists before it is shown.
inline constexpr size_t kTextBytes = 384;

/// The texts of one file have at most this many characters: each is copied and
/// escaped several times before it is shown.
inline constexpr size_t kMaxTextBytes = size_t{16} << 20;

/// Counts bytes for one file until it is destroyed.
class HeldBytes {
 public:
  explicit HeldBytes(size_t bytes);
  ~HeldBytes();
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
};

/// The copies of one file's content share its HeldBytes.
using ReadCharge = std::shared_ptr<const HeldBytes>;

/// Counts `value_bytes` of a file until the charge is gone. `name` is for
/// messages.
/// Errors   FormatError if all that is held then exceeds ReadLimit().
ReadCharge Charge(const std::string& name, size_t file_bytes,
                  size_t value_bytes);

/// Returns the rest of a charge after `value_bytes` of the values are given up;
/// null if there was no charge.
ReadCharge Lessened(const ReadCharge& charge, size_t value_bytes);

}  // namespace isoloss::hdf5
