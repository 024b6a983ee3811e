#include "isoloss/system/output_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"

namespace isoloss::system {

namespace fs = std::filesystem;

namespace {

bool IsEarlier(const fs::path& file, const IsEarlierOutput& is_earlier) {
  try {
    return is_earlier(file);
  } catch (const Error&) {
    return false;
  }
}

/// A line of any table is far shorter than this.
constexpr size_t kMostFront = size_t{64} << 20;

/// Reads at most that many bytes of the file's front.
std::string ReadFront(const fs::path& file, size_t bytes) {
  std::error_code error;
  bytes = std::min<uintmax_t>(bytes, fs::file_size(file, error));
  if (error) return "";
  std::string front(bytes, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(front.data(), static_cast<std::streamsize>(bytes));
  return stream ? front : "";
}

/// Returns the line with its end; "" if it has none.
std::string FirstLine(std::string_view text) {
  const size_t end = text.find('\n');
  return end == text.npos ? "" : std::string(text.substr(0, end + 1));
}

/// Returns the keys of a JSON object in their order; none if the line is no
/// object.
std::vector<std::string> JsonKeys(std::string_view line) {
  const auto record = nlohmann::ordered_json::parse(line, nullptr, false);
  std::vector<std::string> keys;
  if (!record.is_object()) return keys;
  for (const auto& [key, value] : record.items()) keys.push_back(key);
  return keys;
}

}  // namespace

void CheckOutput(const fs::path& output, const std::vector<fs::path>& inputs,
                 std::string_view kind, const IsEarlierOutput& is_earlier,
                 std::string_view option) {
  RemoveStaleTemporaries(output.parent_path(), output.filename().string());
  std::error_code error;  // what can't be seen is refused when it is written
  for (const fs::path& input : inputs) {
    if (fs::equivalent(output, input, error)) {
      ThrowError(ErrorKind::kConfig,
                 "{}: the output is the input {}, which it would replace. Give "
                 "another {}.",
                 output.string(), input.string(), option);
    }
  }
  if (!fs::is_regular_file(output, error)) return;
  if (fs::is_empty(output, error) || IsEarlier(output, is_earlier)) return;
  ThrowError(ErrorKind::kConfig,
             "{}: the output is there already and is no {}, so it is not "
             "replaced. Remove it, or give another {}.",
             output.string(), kind, option);
}

IsEarlierOutput HasFirstLineOf(std::string_view text) {
  return [line = FirstLine(text)](const fs::path& file) {
    return !line.empty() && ReadFront(file, line.size()) == line;
  };
}

IsEarlierOutput HasFirstKeysOf(std::string_view text) {
  return [keys = JsonKeys(FirstLine(text))](const fs::path& file) {
    return !keys.empty() &&
           JsonKeys(FirstLine(ReadFront(file, kMostFront))) == keys;
  };
}

}  // namespace isoloss::system
