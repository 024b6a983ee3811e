#include "isoloss/runlog/writer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <span>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/runlog/h5_handle.h"
#include "isoloss/runlog/rows.h"
#include "isoloss/runlog/schema.h"
#include "isoloss/runlog/trailer.h"

namespace isoloss::runlog {
namespace {

/// Visitor of the schema that writes what it meets.
class Writer {
 public:
  explicit Writer(const h5::Handle& file) : file_(file) {}

  void Version(const Field& field, int64_t version) {
    h5::WriteAttribute(file_, field.name, version);
  }

  template <typename T>
  void Attribute(const Field& field, const T& value) {
    h5::WriteAttribute(file_, field.name, value);
  }

  void Group(const char* name, const char* description, int64_t /*since*/) {
    group_name_ = name;
    group_ = h5::CreateGroup(file_, name);
    h5::WriteAttribute(group_, "description", std::string(description));
    index_ = nullptr;
  }

  template <typename T>
  void Column(const Field& field, const std::vector<T>& values) {
    const bool is_index = index_ == nullptr;
    if (is_index) {
      index_ = field.name;
      rows_ = values.size();
    }
    if (values.empty() && rows_ > 0) return;
    Write<T>(field, values, {});
  }

  template <typename T>
  void Array(const Field& field, const std::vector<T>& values,
             std::initializer_list<Axis<const int64_t>> axes) {
    std::vector<int64_t> sizes;
    for (const auto& axis : axes) sizes.push_back(axis.size);
    const bool flat = *std::min_element(sizes.begin(), sizes.end()) < 1;
    if (values.empty() && (rows_ > 0 || flat)) return;
    if (flat) {
      ThrowError(ErrorKind::kShape,
                 "run log: /{}/{} has {} values in [{}] columns, but needs at "
                 "least one column. Pass the number of columns.",
                 group_name_, field.name, values.size(),
                 fmt::join(sizes, ", "));
    }
    Write<T>(field, values, sizes);
  }

  void Labels(const Field& field, const std::vector<std::string>& names,
              const Axis<const int64_t>& axis) {
    if (names.empty() && rows_ == 0) return;
    if (names.empty() || static_cast<int64_t>(names.size()) != axis.size) {
      ThrowError(ErrorKind::kShape,
                 "run log: /{}/{} has {} values for {} {}. Pass as many names "
                 "as columns.",
                 group_name_, field.name, names.size(), axis.size, axis.name);
    }
    WriteDataset<std::string>(field, names, {names.size()});
  }

  void Count(const Field& field, int64_t rows) {
    std::vector<int64_t> values(static_cast<size_t>(rows));
    std::iota(values.begin(), values.end(), 0);
    Column(field, values);
  }

  template <typename T>
  void Member(const Field& field, const std::vector<Event>& rows,
              T Event::*member) {
    std::vector<T> values;
    std::transform(rows.begin(), rows.end(), std::back_inserter(values),
                   [member](const Event& row) { return row.*member; });
    Column(field, values);
  }

 private:
  /// A dataset [rows_, columns...].
  template <typename T>
  void Write(const Field& field, std::span<const T> values,
             const std::vector<int64_t>& columns) {
    std::vector<uint64_t> extent = {rows_};
    extent.insert(extent.end(), columns.begin(), columns.end());
    uint64_t needed = 1;
    for (const uint64_t size : extent) needed *= size;
    if (values.size() != needed) {
      ThrowError(ErrorKind::kShape,
                 "run log: /{}/{} has {} values, but /{}/{} has {} rows, which "
                 "need {}. Append to all columns at each step.",
                 group_name_, field.name, values.size(), group_name_, index_,
                 rows_, needed);
    }
    WriteDataset(field, values, extent);
  }

  template <typename T>
  void WriteDataset(const Field& field, std::span<const T> values,
                    const std::vector<uint64_t>& extent) {
    const h5::Handle dataset =
        h5::CreateDataset(group_, field.name, h5::TypeOf<T>(), extent);
    h5::WriteDataset(dataset, values);
    h5::WriteAttribute(dataset, "unit", std::string(field.unit));
    h5::WriteAttribute(dataset, "description", std::string(field.description));
  }

  const h5::Handle& file_;
  h5::Handle group_;
  const char* group_name_ = nullptr;
  const char* index_ = nullptr;  // the group's first column, once written
  size_t rows_ = 0;
};

std::vector<std::byte> Encode(const RunLog& log) {
  const h5::Session session;
  const h5::Handle file = h5::CreateFileInMemory();
  Writer writer(file);
  VisitRunLog(writer, log);
  return h5::FileImage(file);
}

}  // namespace

void WriteRunLog(const RunLog& log, const std::filesystem::path& path) {
  CheckSize(RunLog(), log);
  std::vector<std::byte> image;
  try {
    image = Encode(log);
  } catch (const h5::Failure& failure) {
    ThrowError(ErrorKind::kIo, "{}: HDF5 can't hold this run log: {}.",
               path.string(), failure.what());
  }
  AppendTrailer(image);
  WriteFileAtomically(path, image);
}

}  // namespace isoloss::runlog
