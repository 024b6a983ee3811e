#include "isoloss/hdf5/handle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <type_traits>
#include <utility>

#include "isoloss/hdf5/check.h"

namespace isoloss::hdf5 {
namespace {

static_assert(std::is_same_v<hid_t, Id>);
// One type serves memory and disk.
static_assert(std::endian::native == std::endian::little);

std::mutex& LibraryMutex() {
  static std::mutex mutex;
  return mutex;
}

herr_t AppendReason(unsigned /*depth*/, const H5E_error2_t* entry, void* out) {
  static_cast<std::string*>(out)->append(": ").append(entry->desc);
  return 0;
}

Handle PropertyList(hid_t list_class) {
  return {Check(H5Pcreate(list_class), "H5Pcreate"), &H5Pclose};
}

Handle Scalar() {
  return {Check(H5Screate(H5S_SCALAR), "H5Screate"), &H5Sclose};
}

Handle Copy(hid_t type) { return {Check(H5Tcopy(type), "H5Tcopy"), &H5Tclose}; }

Handle TypeOfBool() {
  Handle type{Check(H5Tenum_create(H5T_STD_I8LE), "H5Tenum_create"), &H5Tclose};
  int8_t value = 0;
  Check(H5Tenum_insert(type.get(), "FALSE", &value), "H5Tenum_insert");
  value = 1;
  Check(H5Tenum_insert(type.get(), "TRUE", &value), "H5Tenum_insert");
  return type;
}

Handle TypeOfString() {
  Handle type = Copy(H5T_C_S1);
  Check(H5Tset_size(type.get(), H5T_VARIABLE), "H5Tset_size");
  Check(H5Tset_cset(type.get(), H5T_CSET_UTF8), "H5Tset_cset");
  return type;
}

/// Returns the rows of a chunk: as many as the dataset has, but from 64 rows to
/// 64 KiB. So a short log is a small file and a long log has few chunks.
hsize_t ChunkRows(hsize_t rows, hsize_t width) {
  const hsize_t most = std::max<hsize_t>(1, 8192 / std::max<hsize_t>(1, width));
  return std::clamp<hsize_t>(rows, std::min<hsize_t>(64, most), most);
}

std::string NameOf(const Handle& object) {
  const ssize_t length =
      Check(H5Iget_name(object.get(), nullptr, 0), "H5Iget_name");
  std::string name(static_cast<size_t>(length), '\0');
  Check(H5Iget_name(object.get(), name.data(), name.size() + 1), "H5Iget_name");
  return name;
}

/// A NUL would end the string for every reader.
const char* ToPointer(const std::string& text) {
  if (text.find('\0') != std::string::npos) {
    throw Failure(fmt::format(
        "a text of {} bytes has a NUL byte at position {}, which HDF5 strings "
        "can't hold",
        text.size(), text.find('\0')));
  }
  return text.c_str();
}

}  // namespace

void ThrowFailure(const char* call, std::string_view object) {
  std::string reasons;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, &AppendReason, &reasons);
  H5Eclear2(H5E_DEFAULT);
  throw Failure(fmt::format("{}({}){}", call, object, reasons));
}

Session::Session() : lock_(LibraryMutex()) {
  Check(H5open(), "H5open");
  Check(H5Eget_auto2(H5E_DEFAULT, &print_, &print_client_), "H5Eget_auto2");
  Check(H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr), "H5Eset_auto2");
}

Session::~Session() { H5Eset_auto2(H5E_DEFAULT, print_, print_client_); }

Handle CreateFileInMemory() {
  constexpr size_t kGrowth = size_t{1} << 20;
  const Handle access = PropertyList(H5P_FILE_ACCESS);
  Check(H5Pset_fapl_core(access.get(), kGrowth, /*backing_store=*/false),
        "H5Pset_fapl_core");
  Check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V18),
        "H5Pset_libver_bounds");
  return {Check(H5Fcreate("run log in memory", H5F_ACC_TRUNC, H5P_DEFAULT,
                          access.get()),
                "H5Fcreate"),
          &H5Fclose};
}

std::vector<std::byte> FileImage(const Handle& file) {
  Check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL), "H5Fflush");
  const ssize_t size =
      Check(H5Fget_file_image(file.get(), nullptr, 0), "H5Fget_file_image");
  std::vector<std::byte> image(static_cast<size_t>(size));
  Check(H5Fget_file_image(file.get(), image.data(), image.size()),
        "H5Fget_file_image");
  return image;
}

Handle OpenImage(std::span<const std::byte> image) {
  const Handle access = PropertyList(H5P_FILE_ACCESS);
  Check(H5Pset_fapl_core(access.get(), image.size(), /*backing_store=*/false),
        "H5Pset_fapl_core");
  // HDF5 would copy the bytes twice: it allocates memory of that size for a
  // file that is opened for reading, copies the bytes there, and frees it.
  // These callbacks let it use the caller's bytes.
  H5FD_file_image_callbacks_t in_place = {};
  in_place.udata = const_cast<std::byte*>(image.data());
  in_place.image_malloc = [](size_t, H5FD_file_image_op_t, void* bytes) {
    return bytes;
  };
  in_place.image_memcpy = [](void* to, const void* from, size_t,
                             H5FD_file_image_op_t, void*) -> void* {
    return to == from ? to : nullptr;
  };
  in_place.image_realloc = [](void*, size_t, H5FD_file_image_op_t,
                              void*) -> void* { return nullptr; };
  in_place.image_free = [](void*, H5FD_file_image_op_t, void*) -> herr_t {
    return 0;
  };
  in_place.udata_copy = [](void* bytes) { return bytes; };
  in_place.udata_free = [](void*) -> herr_t { return 0; };
  Check(H5Pset_file_image_callbacks(access.get(), &in_place),
        "H5Pset_file_image_callbacks");
  Check(H5Pset_file_image(access.get(), const_cast<std::byte*>(image.data()),
                          image.size()),
        "H5Pset_file_image");
  return {Check(H5Fopen("/run log in memory", H5F_ACC_RDONLY, access.get()),
                "H5Fopen"),
          &H5Fclose};
}

Handle CreateGroup(const Handle& parent, const char* name) {
  return {Check(H5Gcreate2(parent.get(), name, H5P_DEFAULT, H5P_DEFAULT,
                           H5P_DEFAULT),
                "H5Gcreate2", name),
          &H5Gclose};
}

template <typename T>
Handle TypeOf() {
  if constexpr (std::is_same_v<T, uint8_t>) return Copy(H5T_STD_U8LE);
  if constexpr (std::is_same_v<T, float>) return Copy(H5T_IEEE_F32LE);
  if constexpr (std::is_same_v<T, int32_t>) return Copy(H5T_STD_I32LE);
  if constexpr (std::is_same_v<T, int64_t>) return Copy(H5T_STD_I64LE);
  if constexpr (std::is_same_v<T, double>) return Copy(H5T_IEEE_F64LE);
  if constexpr (std::is_same_v<T, bool>) return TypeOfBool();
  return TypeOfString();
}

bool SameType(const Handle& a, const Handle& b) {
  return Check(H5Tequal(a.get(), b.get()), "H5Tequal") > 0;
}

std::string Describe(const Handle& type) {
  const size_t bits = 8 * H5Tget_size(type.get());
  const char* order =
      H5Tget_order(type.get()) == H5T_ORDER_BE ? "big-endian " : "";
  switch (H5Tget_class(type.get())) {
    case H5T_INTEGER:
      return fmt::format(
          "{}{} {}-bit integer", order,
          H5Tget_sign(type.get()) == H5T_SGN_NONE ? "unsigned" : "signed",
          bits);
    case H5T_FLOAT:
      return fmt::format("{}{}-bit float", order, bits);
    case H5T_STRING:
      return fmt::format(
          "{} {} string",
          H5Tis_variable_str(type.get()) > 0 ? "variable-length"
                                             : "fixed-length",
          H5Tget_cset(type.get()) == H5T_CSET_UTF8 ? "UTF-8" : "ASCII");
    case H5T_ENUM:
      return fmt::format("{}-bit enumeration", bits);
    case H5T_COMPOUND:
      return "compound";
    default:
      return fmt::format("type of HDF5 class {}",
                         static_cast<int>(H5Tget_class(type.get())));
  }
}

Handle CreateDataset(const Handle& parent, const char* name, const Handle& type,
                     std::span<const uint64_t> extent) {
  constexpr hsize_t kWide = 64;  // shorter rows would hardly shrink
  constexpr unsigned kDeflateLevel = 4;
  const auto rank = static_cast<int>(extent.size());
  const std::vector<hsize_t> size(extent.begin(), extent.end());
  hsize_t width = 1;
  for (size_t axis = 1; axis < size.size(); ++axis) width *= size[axis];
  std::vector<hsize_t> limit = size;
  limit[0] = H5S_UNLIMITED;
  std::vector<hsize_t> chunk = size;
  chunk[0] = ChunkRows(size[0], width);
  const Handle space{Check(H5Screate_simple(rank, size.data(), limit.data()),
                           "H5Screate_simple", name),
                     &H5Sclose};
  const Handle properties = PropertyList(H5P_DATASET_CREATE);
  Check(H5Pset_chunk(properties.get(), rank, chunk.data()), "H5Pset_chunk",
        name);
  if (width >= kWide) {
    Check(H5Pset_shuffle(properties.get()), "H5Pset_shuffle", name);
    Check(H5Pset_deflate(properties.get(), kDeflateLevel), "H5Pset_deflate",
          name);
  }
  // A flipped bit must not pass as a value. The library's filters do not apply
  // to strings, which lie outside the chunks.
  if (H5Tis_variable_str(type.get()) <= 0) {
    Check(H5Pset_fletcher32(properties.get()), "H5Pset_fletcher32", name);
  }
  // Without times the same log gives the same bytes.
  Check(H5Pset_obj_track_times(properties.get(), false),
        "H5Pset_obj_track_times", name);
  return {Check(H5Dcreate2(parent.get(), name, type.get(), space.get(),
                           H5P_DEFAULT, properties.get(), H5P_DEFAULT),
                "H5Dcreate2", name),
          &H5Dclose};
}

template <typename T>
void WriteDataset(const Handle& dataset, std::span<const T> values) {
  const Handle type = TypeOf<T>();
  const void* source = values.data();
  std::vector<const char*> pointers;
  if constexpr (std::is_same_v<T, std::string>) {
    std::transform(values.begin(), values.end(), std::back_inserter(pointers),
                   &ToPointer);
    source = pointers.data();
  }
  Check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                 source),
        "H5Dwrite", NameOf(dataset));
}

template <typename T>
void WriteAttribute(const Handle& object, const char* name, const T& value) {
  const Handle type = TypeOf<T>();
  const Handle space = Scalar();
  const Handle attribute{
      Check(H5Acreate2(object.get(), name, type.get(), space.get(), H5P_DEFAULT,
                       H5P_DEFAULT),
            "H5Acreate2", name),
      &H5Aclose};
  if constexpr (std::is_same_v<T, std::string>) {
    const char* pointer = ToPointer(value);
    Check(H5Awrite(attribute.get(), type.get(), &pointer), "H5Awrite", name);
  } else {
    Check(H5Awrite(attribute.get(), type.get(), &value), "H5Awrite", name);
  }
}

template Handle TypeOf<uint8_t>();
template Handle TypeOf<float>();
template Handle TypeOf<int32_t>();
template Handle TypeOf<int64_t>();
template Handle TypeOf<double>();
template Handle TypeOf<bool>();
template Handle TypeOf<std::string>();
template void WriteDataset(const Handle&, std::span<const uint8_t>);
template void WriteDataset(const Handle&, std::span<const float>);
template void WriteDataset(const Handle&, std::span<const int32_t>);
template void WriteDataset(const Handle&, std::span<const int64_t>);
template void WriteDataset(const Handle&, std::span<const double>);
template void WriteDataset(const Handle&, std::span<const std::string>);
template void WriteAttribute(const Handle&, const char*, const int64_t&);
template void WriteAttribute(const Handle&, const char*, const double&);
template void WriteAttribute(const Handle&, const char*, const bool&);
template void WriteAttribute(const Handle&, const char*, const std::string&);

}  // namespace isoloss::hdf5
