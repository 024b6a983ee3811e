#include "isoloss/runlog/content_digest.h"

#include <cstdint>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/runlog/probe_log_schema.h"

namespace isoloss::runlog {
namespace {

/// The terminating 0 keeps one text from running into the next.
void Add(const std::string& text, Digest& digest) {
  digest.Update(text.c_str(), text.size() + 1);
}

template <typename T>
requires std::is_arithmetic_v<T>
void Add(T value, Digest& digest) { digest.Update(&value, sizeof(value)); }

}  // namespace

std::string ContentDigest(const Schema& schema, const View& log) {
  Digest digest;
  const auto add_attribute = [&](const Column& column) {
    log.WithValue(column, [&]<typename T>(const T& value) {
      if (value == T{}) return;
      Add(column.field.name, digest);
      Add(value, digest);
    });
  };
  const auto add_dataset = [&](const Column& column) {
    log.WithValues(column, [&](const auto& values) {
      if (values.empty() || !column.field.reproducible) return;
      Add(column.field.name, digest);
      Add(static_cast<int64_t>(values.size()), digest);
      for (const auto& value : values) Add(value, digest);
    });
  };
  for (const Group& group : schema) {
    if (!group.IsFile()) Add(group.name, digest);
    for (const Column& column : group.ColumnsIn(log)) {
      if (column.role == Role::kAttribute) add_attribute(column);
      if (!group.IsFile()) add_dataset(column);
    }
  }
  return DigestToHex(digest.Value());
}

std::string ContentDigest(const ProbeLog& log) {
  return ContentDigest(SchemaOf<ProbeLog>(), View(log));
}

}  // namespace isoloss::runlog
