// Reads golden HDF5 files in tests. Independent of lib/isoloss/runlog, which is
// itself under test. Include as "support/h5_file.h".
#pragma once

#include <hdf5.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::test_support {

/// A dataset: its extents and its elements in row-major order.
template <typename T>
struct H5Array {
  std::vector<size_t> shape;
  std::vector<T> values;

  size_t rows() const { return shape.empty() ? 1 : shape[0]; }
  size_t cols() const { return shape.size() < 2 ? 1 : shape[1]; }
};

/// A file opened for reading. A missing file, dataset or attribute throws, so
/// that a test can't pass by comparing nothing.
class H5File {
 public:
  explicit H5File(std::string path) : path_(std::move(path)) {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    file_ = H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    Check(file_, "can't be opened");
  }
  ~H5File() {
    if (file_ >= 0) H5Fclose(file_);
  }
  H5File(const H5File&) = delete;
  H5File& operator=(const H5File&) = delete;

  bool Has(const std::string& name) const {
    std::string prefix;
    for (size_t at = 0; at < name.size();) {
      const size_t slash = std::min(name.find('/', at), name.size());
      prefix = name.substr(0, slash);
      if (!prefix.empty() &&
          H5Lexists(file_, prefix.c_str(), H5P_DEFAULT) <= 0) {
        return false;
      }
      at = slash + 1;
    }
    return true;
  }

  /// T: float, double, int8 … uint64. HDF5 converts the stored type.
  template <typename T>
  H5Array<T> Read(const std::string& name) const {
    const hid_t dataset = H5Dopen2(file_, name.c_str(), H5P_DEFAULT);
    Check(dataset, "has no dataset " + name);
    const hid_t space = H5Dget_space(dataset);
    H5Array<T> result;
    std::vector<hsize_t> extents(
        static_cast<size_t>(H5Sget_simple_extent_ndims(space)));
    H5Sget_simple_extent_dims(space, extents.data(), nullptr);
    size_t count = 1;
    for (const hsize_t extent : extents) {
      result.shape.push_back(extent);
      count *= extent;
    }
    result.values.resize(count);
    const herr_t status = H5Dread(dataset, NativeType<T>(), H5S_ALL, H5S_ALL,
                                  H5P_DEFAULT, result.values.data());
    H5Sclose(space);
    H5Dclose(dataset);
    Check(status, "dataset " + name + " can't be read");
    return result;
  }

  template <typename T>
  T ReadScalar(const std::string& name) const {
    return Read<T>(name).values.at(0);
  }

  /// A scalar numeric attribute of `object` ("/" for the root group).
  template <typename T>
  T Attribute(const std::string& name, const std::string& object = "/") const {
    const hid_t attribute = H5Aopen_by_name(file_, object.c_str(), name.c_str(),
                                            H5P_DEFAULT, H5P_DEFAULT);
    Check(attribute, object + " has no attribute " + name);
    T value{};
    const herr_t status = H5Aread(attribute, NativeType<T>(), &value);
    H5Aclose(attribute);
    Check(status, "attribute " + name + " can't be read");
    return value;
  }

  /// A scalar variable-length string attribute of `object`.
  std::string StringAttribute(const std::string& name,
                              const std::string& object = "/") const {
    const hid_t attribute = H5Aopen_by_name(file_, object.c_str(), name.c_str(),
                                            H5P_DEFAULT, H5P_DEFAULT);
    Check(attribute, object + " has no attribute " + name);
    const hid_t type = H5Aget_type(attribute);
    char* text = nullptr;
    const bool read = H5Tis_variable_str(type) > 0 &&
                      H5Aread(attribute, type, &text) >= 0 && text != nullptr;
    std::string value = read ? text : "";
    H5free_memory(text);
    H5Tclose(type);
    H5Aclose(attribute);
    Check(read ? 0 : -1, "string attribute " + name + " can't be read");
    return value;
  }

  /// A dataset of fixed-length or variable-length strings.
  std::vector<std::string> ReadStrings(const std::string& name) const {
    const hid_t dataset = H5Dopen2(file_, name.c_str(), H5P_DEFAULT);
    Check(dataset, "has no dataset " + name);
    const hid_t type = H5Dget_type(dataset);
    const hid_t space = H5Dget_space(dataset);
    const auto count = static_cast<size_t>(H5Sget_simple_extent_npoints(space));
    std::vector<std::string> result(count);
    if (H5Tis_variable_str(type) > 0) {
      std::vector<char*> pointers(count);
      Check(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                    pointers.data()),
            "dataset " + name + " can't be read");
      for (size_t i = 0; i < count; ++i) result[i] = pointers[i];
      H5Dvlen_reclaim(type, space, H5P_DEFAULT, pointers.data());
    } else {
      const size_t width = H5Tget_size(type);
      std::vector<char> bytes(count * width);
      Check(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()),
            "dataset " + name + " can't be read");
      for (size_t i = 0; i < count; ++i) {
        result[i].assign(bytes.data() + i * width, width);
        result[i].resize(
            result[i].find_last_not_of(std::string_view(" \0", 2)) + 1);
      }
    }
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(dataset);
    return result;
  }

  /// Full names of all datasets below `group`, sorted.
  std::vector<std::string> DatasetsBelow(const std::string& group) const {
    std::vector<std::string> found;
    const auto visit = [](hid_t, const char* name, const H5O_info_t* info,
                          void* out) -> herr_t {
      if (info->type == H5O_TYPE_DATASET) {
        static_cast<std::vector<std::string>*>(out)->emplace_back(name);
      }
      return 0;
    };
    const hid_t id = H5Gopen2(file_, group.c_str(), H5P_DEFAULT);
    Check(id, "has no group " + group);
    H5Ovisit2(id, H5_INDEX_NAME, H5_ITER_INC, visit, &found, H5O_INFO_BASIC);
    H5Gclose(id);
    for (std::string& name : found) name = group + "/" + name;
    return found;
  }

  const std::string& path() const { return path_; }

 private:
  template <typename T>
  static hid_t NativeType() {
    if constexpr (std::is_same_v<T, float>) return H5T_NATIVE_FLOAT;
    if constexpr (std::is_same_v<T, double>) return H5T_NATIVE_DOUBLE;
    if constexpr (std::is_same_v<T, int8_t>) return H5T_NATIVE_INT8;
    if constexpr (std::is_same_v<T, uint8_t>) return H5T_NATIVE_UINT8;
    if constexpr (std::is_same_v<T, uint16_t>) return H5T_NATIVE_UINT16;
    if constexpr (std::is_same_v<T, int32_t>) return H5T_NATIVE_INT32;
    if constexpr (std::is_same_v<T, uint32_t>) return H5T_NATIVE_UINT32;
    if constexpr (std::is_same_v<T, int64_t>) return H5T_NATIVE_INT64;
    if constexpr (std::is_same_v<T, uint64_t>) return H5T_NATIVE_UINT64;
    return H5I_INVALID_HID;
  }

  void Check(int64_t id_or_status, const std::string& what) const {
    if (id_or_status < 0) {
      throw Error(ErrorKind::kFormat, path_ + ": " + what);
    }
  }

  std::string path_;
  hid_t file_ = H5I_INVALID_HID;
};

/// golden/<folder>/<name>, or the folder that the environment names instead
/// (ISOLOSS_REFERENCE_DIR, ISOLOSS_VECTORS_DIR): another set, same layout.
inline std::string GoldenPath(const std::string& folder,
                              const std::string& name) {
  const char* variable =
      folder == "reference" ? "ISOLOSS_REFERENCE_DIR" : "ISOLOSS_VECTORS_DIR";
  if (const char* other = std::getenv(variable)) {
    return std::string(other) + "/" + name;
  }
  return ISOLOSS_SOURCE_DIR "/golden/" + folder + "/" + name;
}

}  // namespace isoloss::test_support
