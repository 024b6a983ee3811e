// Wraps HDF5 for the run log: one checked function per C call, ids that close
// themselves, and the library's error stack as an exception instead of text on
// stderr. Files are read through tree.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace isoloss::hdf5 {

/// This type is hid_t, so that includers do not need hdf5.h.
using Id = int64_t;

/// HDF5 refused a call. The text names the call and its object, and gives the
/// library's reasons from the outermost to the innermost.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Gives one thread exclusive use of the library, which may be built without
/// thread safety. Its automatic error printing is off meanwhile. The functions
/// below need a Session alive on the calling thread.
class Session {
 public:
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
  void* print_client_ = nullptr;
  int (*print_)(Id, void*) = nullptr;
};

/// Owns one id.
class Handle {
 public:
  Handle() = default;
  Handle(Id id, int (*close)(Id)) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept { *this = std::move(other); }
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }

  Id get() const { return id_; }

 private:
  Id id_ = -1;
  int (*close_)(Id) = nullptr;
};

/// Makes a new file in memory, in the earliest format. HDF5 never writes it to
/// a disk, since it cannot report a full disk reliably: the caller writes its
/// FileImage.
Handle CreateFileInMemory();
/// Returns the bytes of a file, as they would be on disk.
std::vector<std::byte> FileImage(const Handle& file);
/// Opens the bytes of a file for reading; they must outlive the handle. HDF5
/// can crash on bytes that it did not write.
Handle OpenImage(std::span<const std::byte> image);

Handle CreateGroup(const Handle& parent, const char* name);

/// Our files have these types, the same in memory and on disk: uint8_t, float
/// and int32_t (datasets only), int64_t, double, bool (as h5py stores it),
/// std::string (UTF-8, any length).
template <typename T>
Handle TypeOf();
bool SameType(const Handle& a, const Handle& b);
/// Returns "64-bit float", "fixed-length string", ... for messages.
std::string Describe(const Handle& type);

/// Creates an empty dataset [extent] that grows along its first axis. It is
/// compressed if it has many values in a row.
Handle CreateDataset(const Handle& parent, const char* name, const Handle& type,
                     std::span<const uint64_t> extent);

/// Writes a whole dataset, which has as many elements as `values`.
template <typename T>
void WriteDataset(const Handle& dataset, std::span<const T> values);

template <typename T>
void WriteAttribute(const Handle& object, const char* name, const T& value);

}  // namespace isoloss::hdf5
