// Lets only one process at a time work on the files of a run.
#pragma once

#include "isoloss/base/files.h"
#include "isoloss/runlog/recorder.h"

namespace isoloss::runlog {

/// Holds a lock on the file `.NAME.lock` from construction to destruction or to
/// the death of the process. The destructor removes the file; a process that
/// was killed may leave it.
class RunLock {
 public:
  /// Makes the folder if it is missing. A file system without locks gives no
  /// protection.
  /// Errors   IoError if another process has it, or the file can't be opened.
  explicit RunLock(const RunPaths& paths);
  ~RunLock();
  /// Takes the lock again if its file was removed.
  /// Errors   IoError if another process has got it since.
  void Renew();
  /// True if a killed process left the file, and with it perhaps temporary
  /// files of the run.
  bool is_inherited() const { return is_inherited_; }

  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  void Take();
  void Hold();

  std::filesystem::path path_;
  std::filesystem::path run_;  // for messages
  Descriptor file_;
  bool is_inherited_ = false;
};

}  // namespace isoloss::runlog
