#include "isoloss/runlog/tensor_dump.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/runlog/h5_handle.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/runlog/trailer.h"

namespace isoloss::runlog {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDumpVersion = 1;
constexpr int64_t kBlock = 32;  // elements that share a scale

using Extent = std::vector<uint64_t>;

Extent ExtentOf(int64_t rows, int64_t cols) {
  return {static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)};
}

int64_t Blocks(int64_t elements) { return (elements + kBlock - 1) / kBlock; }

/// Of all segments down a column.
int64_t ColumnBlocks(const DumpedTensor& tensor) {
  int64_t blocks = 0;
  int64_t begin = 0;
  for (const int64_t end : tensor.segment_ends) {
    blocks += Blocks(end - begin);
    begin = end;
  }
  return blocks;
}

bool SegmentsFit(const DumpedTensor& tensor) {
  int64_t begin = 0;
  for (const int64_t end : tensor.segment_ends) {
    if (end <= begin) return false;
    begin = end;
  }
  return begin == tensor.rows;
}

/// Calls visitor.Text, .Number and .Array for each part of a tensor's group, in
/// the order in which later ones depend on earlier ones.
template <typename Visitor, typename Tensor>
void VisitTensor(Visitor& visitor, Tensor& tensor) {
  visitor.Text("module", tensor.module);
  visitor.Text("kind", tensor.kind);
  visitor.Number("order", tensor.order);
  visitor.Number("rows", tensor.rows);
  visitor.Number("cols", tensor.cols);
  visitor.Text("format_rowwise", tensor.format_rowwise);
  visitor.Text("format_columnwise", tensor.format_columnwise);
  const Extent whole = ExtentOf(tensor.rows, tensor.cols);
  visitor.Array("values", tensor.values, whole);
  visitor.Array("segment_ends", tensor.segment_ends, {});
  visitor.CheckSegments(tensor);
  if (!tensor.format_rowwise.empty()) {
    visitor.Array("codes_rowwise", tensor.codes_rowwise, whole);
    visitor.Array("scales_rowwise", tensor.scales_rowwise,
                  ExtentOf(tensor.rows, Blocks(tensor.cols)));
  }
  if (!tensor.format_columnwise.empty()) {
    visitor.Array("codes_columnwise", tensor.codes_columnwise, whole);
    visitor.Array("scales_columnwise", tensor.scales_columnwise,
                  ExtentOf(ColumnBlocks(tensor), tensor.cols));
  }
}

class GroupWriter {
 public:
  GroupWriter(const h5::Handle& file, const std::string& name)
      : name_(name), group_(h5::CreateGroup(file, name.c_str())) {}

  void Text(const char* name, const std::string& text) {
    h5::WriteAttribute(group_, name, text);
  }
  void Number(const char* name, int64_t number) {
    h5::WriteAttribute(group_, name, number);
  }
  /// Empty extent: as long as it is.
  template <typename T>
  void Array(const char* name, const std::vector<T>& values, Extent extent) {
    if (extent.empty()) extent = {values.size()};
    uint64_t needed = 1;
    for (const uint64_t size : extent) needed *= size;
    if (values.size() != needed) {
      ThrowError(ErrorKind::kShape,
                 "tensor dump: {}/{} has {} values, but must be {}. Pass the "
                 "whole array.",
                 name_, name, values.size(), fmt::join(extent, "x"));
    }
    const h5::Handle dataset =
        h5::CreateDataset(group_, name, h5::TypeOf<T>(), extent);
    h5::WriteDataset<T>(dataset, values);
  }
  void CheckSegments(const DumpedTensor& tensor) const {
    if (SegmentsFit(tensor)) return;
    ThrowError(ErrorKind::kShape,
               "tensor dump: {}/segment_ends are {}, but must ascend to the {} "
               "rows. Leave out segments without rows.",
               name_, fmt::join(tensor.segment_ends, ", "), tensor.rows);
  }

 private:
  const std::string& name_;
  h5::Handle group_;
};

[[noreturn]] void Reject(const std::string& path, const std::string& what,
                         const std::string& found,
                         const std::string& expected) {
  ThrowError(ErrorKind::kFormat,
             "{}: {} is {}, but in a tensor dump it is {}. Pass a file that "
             "`isoloss run --dump` wrote.",
             path, what, found, expected);
}

template <typename T>
T ReadAttribute(const std::string& path, const std::string& where,
                const h5::Handle& object, const char* name) {
  const std::string what = fmt::format("{}attribute {}", where, name);
  if (!h5::HasAttribute(object, name)) Reject(path, what, "missing", "present");
  const h5::Handle attribute = h5::OpenAttribute(object, name);
  const h5::Handle type = h5::AttributeType(attribute);
  const h5::Handle expected = h5::TypeOf<T>();
  if (!h5::SameType(type, expected) || !h5::IsScalar(attribute)) {
    Reject(path, what,
           h5::IsScalar(attribute) ? h5::Describe(type) : "an array",
           h5::Describe(expected));
  }
  return h5::ReadAttribute<T>(attribute);
}

/// Reads a dataset of the given extent; empty: of any length.
template <typename T>
std::vector<T> ReadArray(const std::string& path, const std::string& where,
                         const h5::Handle& parent, const char* name,
                         const Extent& extent) {
  const std::string what = where + name;
  if (!h5::HasLink(parent, name)) Reject(path, what, "missing", "present");
  const h5::Handle dataset = h5::OpenDataset(parent, name);
  const h5::Handle type = h5::DatasetType(dataset);
  const h5::Handle expected = h5::TypeOf<T>();
  if (!h5::SameType(type, expected)) {
    Reject(path, what, h5::Describe(type), h5::Describe(expected));
  }
  const Extent found = h5::DatasetExtent(dataset);
  const bool fits = extent.empty() ? found.size() == 1 : found == extent;
  if (!fits) {
    Reject(
        path, what, fmt::format("[{}]", fmt::join(found, ", ")),
        extent.empty() ? "[n]" : fmt::format("[{}]", fmt::join(extent, ", ")));
  }
  uint64_t values = 1;
  for (const uint64_t size : found) {
    if (size != 0 && values > kMaxValues / size) {
      Reject(path, what, "too large", "at most 2^28 values");
    }
    values *= size;
  }
  std::vector<T> read(values);
  h5::ReadDataset<T>(dataset, read);
  return read;
}

class GroupReader {
 public:
  GroupReader(const std::string& path, const h5::Handle& file,
              const std::string& name)
      : path_(path), where_(name + "/") {
    if (!h5::HasLink(file, name.c_str())) {
      Reject(path, "group " + name, "missing", "present");
    }
    group_ = h5::OpenGroup(file, name.c_str());
  }

  void Text(const char* name, std::string& text) {
    text = ReadAttribute<std::string>(path_, where_, group_, name);
  }
  void Number(const char* name, int64_t& number) {
    number = ReadAttribute<int64_t>(path_, where_, group_, name);
    if (number < 0 || number > kMaxValues) {
      Reject(path_, where_ + name, std::to_string(number), "from 0 to 2^28");
    }
  }
  template <typename T>
  void Array(const char* name, std::vector<T>& values, const Extent& extent) {
    values = ReadArray<T>(path_, where_, group_, name, extent);
  }
  void CheckSegments(const DumpedTensor& tensor) const {
    if (SegmentsFit(tensor)) return;
    Reject(path_, where_ + "segment_ends",
           fmt::format("[{}]", fmt::join(tensor.segment_ends, ", ")),
           fmt::format("ascending to the {} rows", tensor.rows));
  }

 private:
  const std::string& path_;
  std::string where_;
  h5::Handle group_;
};

TensorDump Read(const h5::Handle& file, const std::string& path) {
  const auto version = ReadAttribute<int64_t>(path, "", file, "dump_version");
  if (version != kDumpVersion) {
    Reject(path, "attribute dump_version", std::to_string(version),
           std::to_string(kDumpVersion));
  }
  TensorDump dump;
  dump.run = ReadAttribute<std::string>(path, "", file, "run");
  dump.step = ReadAttribute<int64_t>(path, "", file, "step");
  for (const std::string& name :
       ReadArray<std::string>(path, "/", file, "names", {})) {
    DumpedTensor tensor = {.name = name};
    GroupReader reader(path, file, name);
    VisitTensor(reader, tensor);
    dump.tensors.push_back(std::move(tensor));
  }
  return dump;
}

}  // namespace

void WriteTensorDump(const TensorDump& dump, const fs::path& path) {
  std::vector<std::byte> image;
  try {
    const h5::Session session;
    const h5::Handle file = h5::CreateFileInMemory();
    h5::WriteAttribute(file, "dump_version", kDumpVersion);
    h5::WriteAttribute(file, "run", dump.run);
    h5::WriteAttribute(file, "step", dump.step);
    std::vector<std::string> names;
    for (const DumpedTensor& tensor : dump.tensors) {
      names.push_back(tensor.name);
      GroupWriter writer(file, tensor.name);
      VisitTensor(writer, tensor);
    }
    const h5::Handle list = h5::CreateDataset(
        file, "names", h5::TypeOf<std::string>(), Extent{names.size()});
    h5::WriteDataset<std::string>(list, names);
    image = h5::FileImage(file);
  } catch (const h5::Failure& failure) {
    ThrowError(ErrorKind::kIo, "{}: HDF5 can't hold this tensor dump: {}.",
               path.string(), failure.what());
  }
  AppendTrailer(image);
  WriteFileAtomically(path, image);
}

TensorDump ReadTensorDump(const fs::path& path) {
  const std::string bytes = ReadTextFile(path, "Check the path.");
  const std::span<const std::byte> data =
      CheckedData(std::as_bytes(std::span(bytes)), path.string());
  const h5::Session session;
  try {
    return Read(h5::OpenImage(data), path.string());
  } catch (const h5::Failure& failure) {
    ThrowError(ErrorKind::kFormat, "{}: HDF5 can't read it: {}. Make it again.",
               path.string(), failure.what());
  }
}

}  // namespace isoloss::runlog
