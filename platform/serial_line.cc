#include "platform/serial_line.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <termios.h>

namespace bedplate {
namespace {

struct SerialBaud {
  uint32_t baud;
  speed_t speed;
};
constexpr SerialBaud kBauds[] = {{9600, B9600},       {19200, B19200},    {38400, B38400},
                                 {57600, B57600},     {115200, B115200},  {230400, B230400},
                                 {460800, B460800},   {921600, B921600},  {1000000, B1000000},
                                 {1500000, B1500000}, {3000000, B3000000}};

const SerialBaud* find_baud(uint64_t baud) noexcept {
  const auto* found = std::find_if(std::begin(kBauds), std::end(kBauds),
                                   [baud](const SerialBaud& each) { return each.baud == baud; });
  return found == std::end(kBauds) ? nullptr : found;
}

// The error for the present errno.
Error serial_failure(const char* path) noexcept {
  const int number = errno;
  Error error = error_from_errno("opening the serial line %s", path);
  switch (number) {
    case ENOENT:
    case ENXIO:
    case ENODEV:
      return error.set_cure("name one that exists: ls /dev/ttyS* /dev/ttyUSB* /dev/ttyACM*");
    case EACCES:
    case EPERM:
      return error.set_cure("run as root, or add the user to the group of the file: ls -l %s",
                            path);
    case EBUSY:
      return error.set_answer("another process uses it")
          .set_cure("end that process: fuser -v %s", path);
    case EIO: return error.set_cure("name one that has a port: `dmesg | grep tty` lists them");
    default: return error.set_cure("name another line");
  }
}

Error no_terminal(const char* path) noexcept {
  return error_while("opening the serial line %s", path)
      .set_answer("it is not a serial line")
      .set_cure("name one that is: ls /dev/ttyS* /dev/ttyUSB* /dev/ttyACM*");
}

void make_raw(termios* modes, speed_t speed) noexcept {
  cfmakeraw(modes);
  modes->c_iflag &= ~static_cast<tcflag_t>(IXOFF | IXANY | INPCK);
  modes->c_iflag |= IGNBRK | IGNPAR;  // bytes damaged on the line are dropped
  modes->c_cflag &= ~static_cast<tcflag_t>(CSTOPB | CRTSCTS | HUPCL);
  modes->c_cflag |= CS8 | CREAD | CLOCAL;
  modes->c_cc[VMIN] = 1;  // reads without input return EAGAIN, so that 0 means a hangup
  modes->c_cc[VTIME] = 0;
  cfsetspeed(modes, speed);
}

Result<Fd> open_alone(const char* path, termios* modes) noexcept {
  struct stat file = {};
  if (stat(path, &file) != 0) return serial_failure(path);
  // Checked before the open: opening has side effects on some devices.
  if (!S_ISCHR(file.st_mode)) return no_terminal(path);
  Fd fd(open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  if (!fd.is_open()) return serial_failure(path);
  if (tcgetattr(fd.number(), modes) != 0) {
    return errno == ENOTTY ? no_terminal(path) : serial_failure(path);
  }
  // TIOCEXCL would also keep out programs that ignore the lock, but not root, and it outlives the
  // descriptor.
  if (flock(fd.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) errno = EBUSY;
    return serial_failure(path);
  }
  return fd;
}

}  // namespace

const char kSerialBauds[] =
    "9600, 19200, 38400, 57600, 115200, 230400, 460800, 921600, 1000000, 1500000 or 3000000";

bool is_serial_baud(uint64_t baud) noexcept { return find_baud(baud) != nullptr; }

Result<void> check_serial_line(const char* path) noexcept {
  termios modes = {};
  BP_TRY(open_alone(path, &modes));
  return {};
}

Result<Fd> open_serial_line(const char* path, uint32_t baud) noexcept {
  const SerialBaud* const known = find_baud(baud);
  BP_ASSERT(known != nullptr);
  termios modes = {};
  BP_TRY_ASSIGN(Fd fd, open_alone(path, &modes));
  make_raw(&modes, known->speed);
  if (tcsetattr(fd.number(), TCSANOW, &modes) != 0) return serial_failure(path);
  // tcsetattr succeeds if it could set anything at all, so this reads the settings back.
  if (tcgetattr(fd.number(), &modes) != 0) return serial_failure(path);
  if (cfgetospeed(&modes) != known->speed || (modes.c_lflag & (ICANON | ECHO)) != 0) {
    errno = EINVAL;
    return serial_failure(path)
        .set_answer("it does not support %u baud", baud)
        .set_cure("set one of %s", kSerialBauds);
  }
  tcflush(fd.number(), TCIFLUSH);
  return fd;
}

void drop_serial_output(int line) noexcept { tcflush(line, TCOFLUSH); }

void close_serial_line(Fd* line) noexcept {
  if (line->is_open()) tcflush(line->number(), TCIOFLUSH);
  line->close();
}

}  // namespace bedplate
