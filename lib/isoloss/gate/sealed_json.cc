#include "isoloss/gate/sealed_json.h"

#include <utility>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"

namespace isoloss::gate {
namespace {

std::string TextOf(const SealedJson& json, int indent) {
  return json.dump(indent, ' ', false, SealedJson::error_handler_t::replace);
}

}  // namespace

std::string SealOf(const SealedJson& content) {
  return DigestToHex(DigestOf(TextOf(content, -1)));
}

void WriteSealed(SealedJson content, const std::filesystem::path& path) {
  content["digest"] = SealOf(content);
  WriteFileAtomically(path, TextOf(content, 2) + "\n");
}

SealedFile::SealedFile(std::filesystem::path path, std::string rule,
                       size_t max_bytes)
    : path_(std::move(path)), rule_(std::move(rule)) {
  content_ = SealedJson::parse(ReadTextFile(path_, rule_, max_bytes), nullptr,
                               /*allow_exceptions=*/false);
  if (!content_.is_object()) Reject("it is no JSON object");
}

void SealedFile::Reject(const std::string& what) const {
  ThrowError(ErrorKind::kFormat, "{}: {}. {}", path_.string(), what, rule_);
}

void SealedFile::CheckVersion(int64_t version) const {
  int64_t given = 0;
  Read(content_, "schema_version", given);
  if (given != version) {
    Reject(fmt::format("schema_version is {}, but this program reads {}", given,
                       version));
  }
}

void SealedFile::CheckSeal(const std::string& digest) const {
  if (content_.contains("digest") && content_["digest"] == digest) return;
  Reject("its digest is not that of its content, so it was edited");
}

}  // namespace isoloss::gate
