// Files of tests as bytes, and run logs that a test changes behind the
// library's back.
#pragma once

#include <gtest/gtest.h>
#include <hdf5.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/hdf5/handle.h"
#include "isoloss/hdf5/trailer.h"
#include "isoloss/runlog/reader.h"

namespace isoloss::test_support {

inline std::string Bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteBytes(const std::filesystem::path& path,
                       std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// `data` with a trailer that fits.
inline std::string Sealed(std::string_view data) {
  const auto bytes = AsBytes(data);
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  hdf5::AppendTrailer(sealed);
  return {reinterpret_cast<const char*>(sealed.data()), sealed.size()};
}

/// A sealed file without its trailer.
inline std::string_view Unsealed(std::string_view bytes) {
  return bytes.substr(0, bytes.size() - hdf5::kTrailerBytes);
}

/// Changes a run log with HDF5, which drops the trailer.
inline void EditWithHdf5(
    const std::filesystem::path& path,
    const std::function<void(const hdf5::Handle& file)>& edit) {
  const hdf5::Session session;
  const hdf5::Handle file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT),
                          &H5Fclose);
  edit(file);
}

/// The dataset at `path` of an open file.
inline hdf5::Handle OpenDataset(const hdf5::Handle& file, const char* path) {
  return {H5Dopen2(file.get(), path, H5P_DEFAULT), &H5Dclose};
}

/// Removes the object `name` of an open file.
inline void Unlink(const hdf5::Handle& file, const char* name) {
  ASSERT_GE(H5Ldelete(file.get(), name, H5P_DEFAULT), 0);
}

/// The message of the error of kind `kind` that reading throws. Nothing may
/// appear on stderr.
inline std::string ErrorOfReading(const std::filesystem::path& path,
                                  ErrorKind kind) {
  ::testing::internal::CaptureStderr();
  std::string message;
  try {
    runlog::ReadRunLog(path);
    ADD_FAILURE() << path << " was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    message = error.what();
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  return message;
}

}  // namespace isoloss::test_support
