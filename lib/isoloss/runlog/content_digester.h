// The visitor of a schema (schema.h) that digests a log's content.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

/// What is neither empty, 0 nor a clock, so that later versions may add
/// columns.
class ContentDigester {
 public:
  void LayoutVersion(const Field&, int64_t) {}
  void Version(const Field&, int64_t) {}
  void Group(const char* name, const char*, int64_t) { Add(name); }
  template <typename T>
  void Attribute(const Field& field, const T& value) {
    if (value == T{}) return;
    Add(field.name);
    Add(value);
  }
  template <typename T>
  void RequiredColumn(const Field& field, const std::vector<T>& values) {
    Column(field, values);
  }
  template <typename T>
  void Column(const Field& field, const std::vector<T>& values) {
    if (values.empty() || !field.reproducible) return;
    Add(field.name);
    Add(static_cast<int64_t>(values.size()));
    for (const T& value : values) Add(value);
  }
  template <typename T>
  void Array(const Field& field, const std::vector<T>& values,
             std::initializer_list<Axis<const int64_t>>) {
    Column(field, values);
  }
  void Labels(const Field& field, const std::vector<std::string>& names,
              const Axis<const int64_t>&) {
    Column(field, names);
  }

  std::string Hex() const { return DigestToHex(digest_.Value()); }

 private:
  /// The terminating 0 keeps one text from running into the next.
  void Add(const std::string& text) {
    digest_.Update(text.c_str(), text.size() + 1);
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void Add(T value) { digest_.Update(&value, sizeof(value)); }

  Digest digest_;
};

}  // namespace isoloss::runlog
