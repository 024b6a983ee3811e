// One process at a time works on the files of a run.
#pragma once

#include "isoloss/base/files.h"
#include "isoloss/runlog/recorder.h"

namespace isoloss::runlog {

/// Held from construction to destruction or the death of the process, however
/// it dies. The file `.NAME.lock` that it is on is removed at the end, and may
/// stay behind a process that was killed.
class RunLock {
 public:
  /// Makes the folder if it is missing. Where the file system has no locks
  /// there is no protection.
  /// Errors   IoError if another process has it, or the file can't be opened.
  explicit RunLock(const RunPaths& paths);
  ~RunLock();
  /// Takes it again if its file was removed from under it.
  /// Errors   IoError if another process has got it since.
  void Renew();
  /// Whether a process that was killed had left the file behind, and with it
  /// perhaps temporary files of the run.
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
