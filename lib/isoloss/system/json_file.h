// Reads JSON files of a known shape that anybody may have written.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "isoloss/document/json.h"

namespace isoloss::system {

/// Holds a file that was read.
///
/// Bounds   a file of 16 MiB; 500,000 values, 40 levels, 2,000 keys of an
///          object.
class JsonFile {
 public:
  /// `kind` completes "it is no".
  ///
  /// Errors   as ReadTextFile; FormatError if it is no JSON or beyond the
  ///          bounds.
  JsonFile(const std::filesystem::path& path, const std::string& kind);
  ~JsonFile();

  const document::Json& json() const { return *json_; }

  /// Checks that `value` (null: the file's) has the shape of `shape`. That is a
  /// JSON value with these parts:
  ///   "s", "i", "n", "b", "o"  a string, an integer, a number or null, a truth
  ///                  value, any object
  ///   "s?", …        that or null
  ///   [shape]        a list of such values
  ///   {"key": shape} an object that has these keys and maybe more; the key
  ///                  "nullable" says that it may be null
  ///
  /// Errors   FormatError that names the file and the place.
  void Check(const char* shape, const document::Json* value = nullptr) const;

 private:
  void CheckShape(const document::Json& shape, const document::Json& value,
                  const std::string& where) const;
  void CheckMembers(const document::Json& shape, const document::Json& value,
                    const std::string& where) const;
  [[noreturn]] void Reject(const std::string& what) const;
  document::Json Parse(const std::string& text) const;

  std::string file_;
  std::string kind_;
  std::unique_ptr<const document::Json> json_;
};

}  // namespace isoloss::system
