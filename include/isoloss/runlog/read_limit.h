// How much memory files may ask for. Whoever makes a small file can make it say
// that it holds much: what a command reads is bounded in sum, and so is what a
// run writes, so that every log of ours can be read.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace isoloss::runlog {

/// Who made a file.
enum class Maker {
  kAnybody,
  kThisRun,  ///< in this process: its memory is not counted
};

/// Bytes of all values of one file, and of all files that are held at a time,
/// but for twice their sizes on disk: 384 MiB, or ISOLOSS_MEMORY_MIB.
/// Errors   ConfigError if that variable is no number of MiB.
size_t ReadLimit();

/// What one text counts for in it, its characters aside: it stands in several
/// lists on its way to a screen.
inline constexpr size_t kTextBytes = 384;

/// Characters of all texts of one file: each is copied and escaped several
/// times on that way.
inline constexpr size_t kMaxTextBytes = size_t{16} << 20;

/// Bytes that one file counts for until it goes.
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

/// The share of one file that is held; shared by the copies of what was read.
using ReadCharge = std::shared_ptr<const HeldBytes>;

/// Counts `value_bytes` of a file until the charge is gone. `name` is for
/// messages.
/// Errors   FormatError if all that is held then exceeds ReadLimit().
ReadCharge Charge(const std::string& name, size_t file_bytes,
                  size_t value_bytes);

/// What is left of a charge when `value_bytes` of the values are given up. Null
/// if there was none.
ReadCharge Lessened(const ReadCharge& charge, size_t value_bytes);

}  // namespace isoloss::runlog
