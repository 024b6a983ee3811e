#include "isoloss/runlog/writer.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/runlog/h5_handle.h"
#include "isoloss/runlog/schema.h"

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

  void Group(const char* name, const char* description) {
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
    CheckSize(field, values.size(), 1);
    Write<T>(field, values, 0);
  }

  void Table(const Field& field, const std::vector<double>& values,
             int64_t width) {
    if (width == 0 && values.empty()) return;
    if (width < 1) {
      ThrowError(ErrorKind::kShape,
                 "run log: /{}/{} has {} values in {} columns, but needs at "
                 "least one column. Pass the number of columns.",
                 group_name_, field.name, values.size(), width);
    }
    CheckSize(field, values.size(), static_cast<size_t>(width));
    Write<double>(field, values, static_cast<size_t>(width));
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
  void CheckSize(const Field& field, size_t size, size_t width) const {
    if (size == rows_ * width) return;
    ThrowError(ErrorKind::kShape,
               "run log: /{}/{} has {} values, but /{}/{} has {} rows, which "
               "need {}. Append to all columns at each step.",
               group_name_, field.name, size, group_name_, index_, rows_,
               rows_ * width);
  }

  template <typename T>
  void Write(const Field& field, std::span<const T> values, size_t width) {
    const h5::Handle dataset =
        h5::CreateDataset(group_, field.name, h5::TypeOf<T>(), rows_, width);
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
  std::vector<std::byte> image;
  try {
    image = Encode(log);
  } catch (const h5::Failure& failure) {
    ThrowError(ErrorKind::kIo, "{}: HDF5 can't hold this run log: {}.",
               path.string(), failure.what());
  }
  WriteFileAtomically(path, image);
}

}  // namespace isoloss::runlog
