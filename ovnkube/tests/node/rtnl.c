/*
 * Makes one process see a kernel in which another process changes links: loaded before its C library (LD_PRELOAD).
 *
 * While the file named by OVN_TEST_RTNL exists, a thread that sends a message to rtnetlink sleeps in the call, as
 * in a kernel whose rtnl_mutex is held. Each such call appends a line to the file: the name of the thread. The
 * file named by OVN_TEST_RTNL_LINK does the same to the requests for one link alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int is_rtnetlink(int fd)
{
    int domain = 0, protocol = -1;
    socklen_t length = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_NETLINK)
        return 0;
    length = sizeof protocol;
    return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 && protocol == NETLINK_ROUTE;
}

static int asks_for_one_link(const void *buffer, size_t length)
{
    const struct nlmsghdr *request = buffer;
    return length >= sizeof *request && request->nlmsg_type == RTM_GETLINK
        && (request->nlmsg_flags & NLM_F_DUMP) != NLM_F_DUMP;
}

static void wait_while(const char *held)
{
    char name[17] = "";
    int file = held ? open(held, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    prctl(PR_GET_NAME, name);
    strcat(name, "\n");
    if (write(file, name, strlen(name)) != (ssize_t)strlen(name))
        _exit(125);
    close(file);
    while (access(held, F_OK) == 0)
        usleep(1000);
}

ssize_t sendto(int fd, const void *buffer, size_t length, int flags, const struct sockaddr *to, socklen_t to_length)
{
    static __typeof__(&sendto) real;
    if (!real)
        real = (__typeof__(&sendto))dlsym(RTLD_NEXT, "sendto");
    if (is_rtnetlink(fd)) {
        wait_while(getenv("OVN_TEST_RTNL"));
        if (asks_for_one_link(buffer, length))
            wait_while(getenv("OVN_TEST_RTNL_LINK"));
    }
    return real(fd, buffer, length, flags, to, to_length);
}

ssize_t send(int fd, const void *buffer, size_t length, int flags)
{
    return sendto(fd, buffer, length, flags, NULL, 0);
}
