#include "isoloss/foreign/source.h"

#include <fstream>
#include <system_error>
#include <utility>

#include "isoloss/base/text_file.h"
#include "isoloss/foreign/json.h"
#include "isoloss/foreign/refusals.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {

Source Source::OfPath(std::filesystem::path path) {
  Source source;
  source.path_ = std::move(path);
  std::error_code error;
  source.is_folder_ = std::filesystem::is_directory(source.path_, error);
  if (!std::filesystem::is_regular_file(source.path_, error)) return source;
  std::ifstream stream(source.path_, std::ios::binary);
  source.head_.resize(kHeadBytes);
  stream.read(source.head_.data(), kHeadBytes);
  source.head_.resize(static_cast<size_t>(stream.gcount()));
  return source;
}

Source Source::OfContent(std::string_view content) {
  Source source;
  source.head_ = content.substr(0, kHeadBytes);
  source.bytes_ = content;
  return source;
}

std::string_view Source::bytes() {
  if (!bytes_) {
    file_ =
        ReadTextFile(path_, "Give a smaller part of the log.", kMostLogBytes);
    bytes_ = file_;
  }
  return *bytes_;
}

std::string_view Source::text() {
  std::string_view text = bytes();
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    if (utf8_.empty()) utf8_ = Utf8OfUtf16(text);
    text = utf8_;
  }
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  RefuseBinary(text);
  return text;
}

const nlohmann::json& Source::json() {
  if (json_) return *json_;
  json_ = nlohmann::json(nlohmann::json::value_t::discarded);
  if (is_folder_) return *json_;
  const std::string_view all = text();
  const size_t first = all.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos &&
      (all[first] == '{' || all[first] == '[')) {
    json_ = ParseJson(all);
  }
  return *json_;
}

}  // namespace isoloss::foreign
