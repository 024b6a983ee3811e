#include "isoloss/runlog/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <string_view>
#include <system_error>

#include "isoloss/base/error.h"
#include "isoloss/runlog/h5_handle.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {
namespace {

namespace fs = std::filesystem;

/// Far above any run; keeps a forged extent from asking for all memory.
constexpr uint64_t kMaxValues = uint64_t{1} << 28;

/// Visitor of the schema that reads what it meets and accepts nothing else.
class Reader {
 public:
  Reader(const h5::Handle& file, const fs::path& path)
      : file_(file), path_(path.string()) {}

  void Version(const Field& field, int64_t expected) {
    int64_t found = 0;
    Attribute(field, found);
    if (found != expected) {
      ThrowError(ErrorKind::kFormat,
                 "{}: {} is {}, but this program reads {}. Read it with the "
                 "version named in its attribute tool_version.",
                 path_, field.name, found, expected);
    }
  }

  template <typename T>
  void Attribute(const Field& field, T& value) {
    value = ReadAttribute<T>(file_, field.name, "attribute ");
  }

  void Group(const char* name, const char* /*description*/) {
    if (!h5::HasLink(file_, name)) {
      Reject(fmt::format("group /{}", name), "missing", "present");
    }
    group_name_ = name;
    group_ = h5::OpenGroup(file_, name);
    index_ = nullptr;
  }

  template <typename T>
  void Column(const Field& field, std::vector<T>& values) {
    values.clear();
    if (index_ == nullptr || h5::HasLink(group_, field.name)) {
      ReadColumn(field, values);
    }
  }

  void Table(const Field& field, std::vector<double>& values, int64_t& width) {
    values.clear();
    width = 0;
    if (!h5::HasLink(group_, field.name)) return;
    const h5::Handle dataset = Open<double>(field);
    const std::vector<uint64_t> extent = h5::DatasetExtent(dataset);
    if (extent.size() != 2 || extent[0] != rows_ || extent[1] == 0 ||
        extent[1] > kMaxValues) {
      RejectExtent(field, extent, fmt::format("[{}, at least 1]", rows_));
    }
    CheckCount(field, extent[0] * extent[1]);
    values.resize(extent[0] * extent[1]);
    width = static_cast<int64_t>(extent[1]);
    h5::ReadDataset<double>(dataset, values);
  }

  template <typename T>
  void Member(const Field& field, std::vector<Event>& rows, T Event::*member) {
    std::vector<T> values;
    ReadColumn(field, values);
    rows.resize(values.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].*member = std::move(values[i]);
    }
  }

 private:
  [[noreturn]] void Reject(std::string_view object, std::string_view found,
                           std::string_view expected) const {
    ThrowError(ErrorKind::kFormat,
               "{}: {} is {}, but must be {} (docs/run-log.md). The file is "
               "damaged or no run log; make it again.",
               path_, object, found, expected);
  }

  [[noreturn]] void RejectExtent(const Field& field,
                                 const std::vector<uint64_t>& found,
                                 std::string_view expected) const {
    Reject(fmt::format("the extent of {}", Name(field)),
           fmt::format("[{}]", fmt::join(found, ", ")), expected);
  }

  std::string Name(const Field& field) const {
    return fmt::format("/{}/{}", group_name_, field.name);
  }

  void CheckType(std::string_view object, const h5::Handle& found,
                 const h5::Handle& expected) const {
    if (!h5::SameType(found, expected)) {
      Reject(fmt::format("the type of {}", object), h5::Describe(found),
             h5::Describe(expected));
    }
  }

  void CheckCount(const Field& field, uint64_t count) const {
    if (count > kMaxValues) {
      Reject(fmt::format("the number of values of {}", Name(field)),
             fmt::to_string(count), fmt::format("at most {}", kMaxValues));
    }
  }

  template <typename T>
  T ReadAttribute(const h5::Handle& object, const char* name,
                  std::string_view owner) const {
    const std::string full_name = fmt::format("{}{}", owner, name);
    if (!h5::HasAttribute(object, name))
      Reject(full_name, "missing", "present");
    const h5::Handle attribute = h5::OpenAttribute(object, name);
    CheckType(full_name, h5::AttributeType(attribute), h5::TypeOf<T>());
    if (!h5::IsScalar(attribute)) Reject(full_name, "an array", "one value");
    return h5::ReadAttribute<T>(attribute);
  }

  template <typename T>
  h5::Handle Open(const Field& field) const {
    if (!h5::HasLink(group_, field.name)) {
      Reject(Name(field), "missing", "present");
    }
    h5::Handle dataset = h5::OpenDataset(group_, field.name);
    CheckType(Name(field), h5::DatasetType(dataset), h5::TypeOf<T>());
    const std::string unit_name = fmt::format("attribute {}:", Name(field));
    const std::string unit =
        ReadAttribute<std::string>(dataset, "unit", unit_name);
    if (unit != field.unit) {
      Reject(unit_name + "unit", fmt::format("`{}`", unit),
             fmt::format("`{}`", field.unit));
    }
    return dataset;
  }

  template <typename T>
  void ReadColumn(const Field& field, std::vector<T>& values) {
    const h5::Handle dataset = Open<T>(field);
    const std::vector<uint64_t> extent = h5::DatasetExtent(dataset);
    if (extent.size() != 1) RejectExtent(field, extent, "[rows]");
    if (index_ == nullptr) {
      CheckCount(field, extent[0]);
      index_ = field.name;
      rows_ = extent[0];
    }
    if (extent[0] != rows_) {
      RejectExtent(
          field, extent,
          fmt::format("[{}] as that of /{}/{}", rows_, group_name_, index_));
    }
    values.resize(rows_);
    h5::ReadDataset<T>(dataset, values);
  }

  const h5::Handle& file_;
  std::string path_;
  h5::Handle group_;
  const char* group_name_ = nullptr;
  const char* index_ = nullptr;  // the group's first column, once read
  uint64_t rows_ = 0;
};

/// HDF5 does not tell an unreadable file from a wrong one, nor would it return
/// from a pipe.
void CheckReadable(const fs::path& path) {
  constexpr std::array<char, 8> kSignature = {'\x89', 'H',  'D',    'F',
                                              '\r',   '\n', '\x1a', '\n'};
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    ThrowError(ErrorKind::kIo, "{}: can't open: {}. Check the path.",
               path.string(), error.message());
  }
  if (!fs::is_regular_file(status)) {
    ThrowError(ErrorKind::kIo,
               "{}: is a folder or device, but a run log is a file. Pass the "
               "path of an .h5 file.",
               path.string());
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    ThrowError(ErrorKind::kIo, "{}: can't open: {}. Check its permissions.",
               path.string(), std::generic_category().message(errno));
  }
  std::array<char, 8> head{};
  file.read(head.data(), head.size());
  if (head != kSignature) {
    ThrowError(ErrorKind::kFormat,
               "{}: the first {} bytes are not the HDF5 signature, but a run "
               "log is an HDF5 file. Pass a file that `isoloss run` wrote.",
               path.string(), head.size());
  }
}

}  // namespace

RunLog ReadRunLog(const fs::path& path) {
  CheckReadable(path);
  const h5::Session session;
  try {
    const h5::Handle file = h5::OpenFile(path);
    Reader reader(file, path);
    RunLog log;
    VisitRunLog(reader, log);
    return log;
  } catch (const h5::Failure& failure) {
    ThrowError(ErrorKind::kFormat,
               "{}: HDF5 can't read it: {}. The file is truncated or damaged; "
               "make it again.",
               path.string(), failure.what());
  }
}

}  // namespace isoloss::runlog
