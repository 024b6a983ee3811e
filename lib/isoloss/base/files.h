// System calls on files and folders whose every result is looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

namespace isoloss {

/// Holds an open descriptor, or none.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// All functions throw IoError with the path, the system's reason and a remedy.

/// Throws it for errno. `action` completes "can't".
[[noreturn]] void ThrowErrno(const std::filesystem::path& path,
                             const char* action);

/// A new file; messages call it `shown`, or `path` if that is empty.
Descriptor CreateFile(const std::filesystem::path& path,
                      const std::filesystem::path& shown = {});
/// Refuses what is no regular file.
Descriptor OpenFile(const std::filesystem::path& path);
/// Opens or makes a file whose content is about to be replaced in place.
/// Refuses a symbolic link, a file with another name, a pipe or a device, as
/// the file could belong to somebody else. `kind` completes "a … is a file of
/// its own".
Descriptor OpenOwnFile(const std::filesystem::path& path, const char* kind);
Descriptor OpenFolder(const std::filesystem::path& path);

/// Locks the folder against other processes that do the same, until the
/// descriptor is closed. Nothing is written to it. `wait`: once those have let
/// go; else the result is no descriptor while another process has the lock.
/// Where the file system has no such locks there is no protection.
Descriptor LockFolder(const std::filesystem::path& folder, bool wait);

uint64_t FileSize(const Descriptor& file, const std::filesystem::path& path);
/// Takes the space from the disk, where the file system can.
void Reserve(const Descriptor& file, uint64_t bytes,
             const std::filesystem::path& path);
void WriteAll(const Descriptor& file, std::span<const std::byte> bytes,
              const std::filesystem::path& path);
/// FormatError if the file ends before `bytes` are full.
void ReadAll(const Descriptor& file, uint64_t offset,
             std::span<std::byte> bytes, const std::filesystem::path& path);
/// Syncs and closes a file that was written.
void SyncAndClose(Descriptor file, const std::filesystem::path& path);
void SyncFolder(const Descriptor& folder, const std::filesystem::path& path);
void SyncFolder(const std::filesystem::path& path);
/// Whether `path` names the open file itself: it was neither removed nor
/// replaced. Throws nothing.
bool IsStillAt(int file, const std::filesystem::path& path);
void Rename(const std::filesystem::path& from, const std::filesystem::path& to);
/// A file that may be missing.
void RemoveFile(const std::filesystem::path& path);
/// A folder that may be missing, with what is in it.
void RemoveFolder(const std::filesystem::path& path);

}  // namespace isoloss
