#include "platform/secret_file.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/user.h"

namespace bedplate {
namespace {

bool may_own_it(uint32_t owner, const std::string& user) {
  if (is_own_user(owner, own_user())) return true;
  if (user.empty()) return false;
  auto other = find_user_id(user.c_str());
  return other.ok() && other.value() == owner;
}

Result<void> check_rights(const struct stat& status, const std::string& path, FilePrivacy privacy,
                          const std::string& user) {
  Error error;
  const unsigned mode = status.st_mode & 07777U;
  const char* chown_to = user.empty() ? "root" : user.c_str();
  if (!may_own_it(status.st_uid, user)) {
    error.set_answer("it belongs to user %u, who can read and change it", status.st_uid);
    return error.set_cure("chown %s %s, if its contents are right", chown_to, path.c_str());
  }
  if (privacy == FilePrivacy::kTrusted) {
    if ((mode & S_IWOTH) == 0) return {};
    error.set_answer("every user of this machine can write it (mode %04o)", mode);
    return error.set_cure("check that its contents are right, then chmod o-w %s", path.c_str());
  }
  const unsigned others = status.st_uid == 0 ? S_IRWXO | S_IWGRP | S_IXGRP : S_IRWXO | S_IRWXG;
  if ((mode & others) == 0) return {};
  error.set_answer("users other than its owner can read or write it (mode %04o)", mode);
  return error.set_cure("chmod 600 %s; if others have read it, make a new secret", path.c_str());
}

}  // namespace

SecretText::~SecretText() { explicit_bzero(text.data(), text.size()); }

Result<SecretText> read_secret_file(const std::string& path, FilePrivacy privacy, size_t bytes_max,
                                    const std::string& user) {
  Error error = error_while("reading %s", path.c_str());
  const auto refuse = [&error](const Error& why) {
    return error.set_answer("%s", why.answer).set_cure("%s", why.cure);
  };
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!fd.is_open() || fstat(fd.number(), &status) != 0) {
    return error.set_answer_errno(errno).set_cure("name a file that exists and can be read");
  }
  if (!S_ISREG(status.st_mode)) {
    return error.set_answer("it is not a regular file").set_cure("name a file");
  }
  if (auto good = check_rights(status, path, privacy, user); !good.ok()) {
    return refuse(good.error());
  }
  // One byte more shows whether the file is too long, or has grown.
  SecretText secret(std::min(static_cast<size_t>(status.st_size), bytes_max) + 1);
  std::string& text = secret.text;
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t outcome = read(fd.number(), text.data() + done, text.size() - done);
    if (outcome < 0 && errno == EINTR) continue;
    if (outcome < 0) {
      return error.set_answer_errno(errno).set_cure("check its file system");
    }
    if (outcome == 0) break;
    done += static_cast<size_t>(outcome);
  }
  if (done == text.size()) {
    error.set_answer("it has more than %zu bytes", text.size() - 1);
    return error.set_cure("name the right one, or make it shorter");
  }
  text.resize(done);
  return secret;
}

}  // namespace bedplate
